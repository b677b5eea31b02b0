/* Preloaded with MXNet 1.9.1 for CUDA: starts MXNet's own kernels from machine code that build.py has compiled.

   libmxnet.so registers each kernel with CUDA's runtime: the address of a host function, and the kernel's name. It
   starts a kernel by that address. The functions below replace those of the runtime. They remember the addresses of the
   kernels that the file INDEX names, and let the driver start these, from the files next to INDEX. The runtime gets all
   others, and those that the driver refuses: its error is then the one that MXNet reports. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16 };

/* Of CUDA's headers, which are not needed to compile this file. */
typedef struct { unsigned x, y, z; } dim3;
typedef void *Module, *Function;
typedef int Status; /* 0 is success, in the runtime and in the driver */
typedef struct { /* the start of cudaFuncAttributes, the same since CUDA 9 */
    size_t shared, constant, local;
    int threads, registers, ptx, binary, cache, dynamic, carveout;
} Attributes;

typedef struct Image { char *file; Module modules[DEVICES]; struct Image *next; } Image;
typedef struct { char *name, *symbol; Image *image; Function functions[DEVICES]; } Kernel;
typedef struct { const void *address; Kernel *kernel; } Host;

static Kernel *kernels; /* sorted by name */
static size_t kernel_count;
static Image *images;
static char folder[PATH_MAX];
static void *hosts; /* a tree of Host */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *symbol_of(const char *library, int mode, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | mode), *symbol = handle ? dlsym(handle, name) : NULL;
    if (symbol == NULL) {
        fprintf(stderr, "mxnet kernels: %s of %s is not found\n", name, library);
        abort();
    }
    return symbol;
}

/* The runtime's or the driver's own function, looked up once. libmxnet.so needs the runtime, so it is loaded. */
#define OWN(type, library, mode, name, ...) \
    ({ static type (*own)(__VA_ARGS__); if (own == NULL) own = symbol_of(library, mode, name); own; })
#define RUNTIME(name, ...) OWN(Status, "libcudart.so.11.0", RTLD_NOLOAD, name, __VA_ARGS__)
#define DRIVER(name, ...) OWN(Status, "libcuda.so.1", 0, name, __VA_ARGS__)

/* -- the index */

static Image *image_of(const char *file) {
    for (Image *image = images; image != NULL; image = image->next)
        if (strcmp(image->file, file) == 0) return image;
    Image *image = calloc(1, sizeof *image);
    image->file = strdup(file);
    image->next = images;
    return images = image;
}

static int by_name(const void *one, const void *other) {
    return strcmp(((const Kernel *)one)->name, ((const Kernel *)other)->name);
}

static int by_address(const void *one, const void *other) {
    const char *a = ((const Host *)one)->address, *b = ((const Host *)other)->address;
    return (a > b) - (a < b);
}

/* Reads the lines "name file symbol" of INDEX, in this library's folder: the name that libmxnet.so registers, and the
   file that contains the kernel, under a symbol that is another if the name is that of a compilation. */
static void read_index(void) {
    Dl_info own;
    char path[PATH_MAX + 8], *line = NULL;
    size_t size = 0, room = 0;
    if (dladdr((void *)read_index, &own) == 0 || realpath(own.dli_fname, folder) == NULL) return;
    *strrchr(folder, '/') = 0;
    snprintf(path, sizeof path, "%s/INDEX", folder);
    FILE *index = fopen(path, "r");
    if (index == NULL) { perror(path); return; }
    while (getline(&line, &size, index) > 0) {
        char *rest, *name = strtok_r(line, " \n", &rest), *file = strtok_r(NULL, " \n", &rest);
        char *symbol = strtok_r(NULL, " \n", &rest);
        if (symbol == NULL) continue;
        if (kernel_count == room) kernels = realloc(kernels, (room = 2 * room + 1024) * sizeof *kernels);
        kernels[kernel_count++] = (Kernel){.name = strdup(name), .symbol = strdup(symbol), .image = image_of(file)};
    }
    free(line);
    fclose(index);
    qsort(kernels, kernel_count, sizeof *kernels, by_name);
}

/* -- a kernel on the current device */

/* Returns the current device; its context is then the one that the driver uses in this thread. */
static int current_device(void) {
    static __thread int current = -1;
    int device = -1;
    RUNTIME("cudaGetDevice", int *)(&device);
    if (device != current) RUNTIME("cudaFree", void *)(NULL);
    return current = device;
}

/* Returns the function that the driver starts for a host function; NULL if the runtime has to start it. */
static Function function_of(const void *address) {
    Host wanted = {.address = address};
    Function function = NULL;
    pthread_mutex_lock(&lock);
    Host **found = tfind(&wanted, &hosts, by_address);
    int device = found ? current_device() : -1;
    if (device >= 0 && device < DEVICES) {
        Kernel *kernel = (*found)->kernel;
        Module *module = &kernel->image->modules[device];
        Status status = 0;
        if (*module == NULL) {
            char path[2 * PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", folder, kernel->image->file);
            status = DRIVER("cuModuleLoad", Module *, const char *)(module, path);
        }
        if (status == 0 && kernel->functions[device] == NULL)
            status = DRIVER("cuModuleGetFunction", Function *, Module, const char *)(
                &kernel->functions[device], *module, kernel->symbol);
        if (status) fprintf(stderr, "mxnet kernels: error %d in %s, %s\n", status, kernel->image->file, kernel->symbol);
        function = status ? NULL : kernel->functions[device];
    }
    pthread_mutex_unlock(&lock);
    return function;
}

/* -- what libmxnet.so calls */

void __cudaRegisterFunction(void **binary, const char *address, char *device_function, const char *name, int limit,
                            void *thread, void *block, void *blocks, void *grid, int *warp) {
    OWN(void, "libcudart.so.11.0", RTLD_NOLOAD, "__cudaRegisterFunction", void **, const char *, char *, const char *,
        int, void *, void *, void *, void *, int *)(
        binary, address, device_function, name, limit, thread, block, blocks, grid, warp);
    pthread_once(&once, read_index);
    Kernel wanted = {.name = (char *)name};
    Kernel *kernel = kernel_count ? bsearch(&wanted, kernels, kernel_count, sizeof *kernels, by_name) : NULL;
    if (kernel == NULL) return;
    Host *host = malloc(sizeof *host);
    *host = (Host){address, kernel};
    pthread_mutex_lock(&lock);
    if (*(Host **)tsearch(host, &hosts, by_address) != host) free(host);
    pthread_mutex_unlock(&lock);
}

Status cudaLaunchKernel(const void *address, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    Function function = function_of(address);
    if (function != NULL) {
        Status status = DRIVER("cuLaunchKernel", Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, void *, void **, void **)(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, NULL);
        if (status == 0) return 0;
        fprintf(stderr, "mxnet kernels: error %d when a kernel is started\n", status);
    }
    return RUNTIME("cudaLaunchKernel", const void *, dim3, dim3, void **, size_t, void *)(
        address, grid, block, arguments, shared, stream);
}

Status cudaFuncGetAttributes(Attributes *attributes, const void *address) {
    Function function = function_of(address);
    if (function == NULL) return RUNTIME("cudaFuncGetAttributes", Attributes *, const void *)(attributes, address);
    int values[10] = {0}; /* numbered as the driver does: CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK is 0 */
    for (int each = 0; each < 10; each++)
        DRIVER("cuFuncGetAttribute", int *, int, Function)(&values[each], each, function);
    *attributes = (Attributes){values[1], values[2], values[3], values[0], values[4],
                               values[5], values[6], values[7], values[8], values[9]};
    return 0;
}

Status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *address, int block, size_t shared,
                                                              unsigned flags) {
    Function function = function_of(address);
    if (function == NULL)
        return RUNTIME("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", int *, const void *, int, size_t,
                       unsigned)(count, address, block, shared, flags);
    return DRIVER("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", int *, Function, int, size_t, unsigned)(
        count, function, block, shared, flags);
}
