// MXNet's library, with kernels: two of a file, one of an unnamed namespace, one of a damaged file, and one of no file.
#include <stdio.h>
typedef struct { unsigned x, y, z; } dim3;
typedef struct { size_t sizes[3]; int numbers[24]; } Attributes;
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaFuncGetAttributes(Attributes *, const void *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, const void *, int, size_t, unsigned);
int cudaSetDevice(int);
static const char *const names[] = {"_Z3padi", "_Z4cropi", "_Z23_GLOBAL__N__15_of_mxnet3addi", "_Z3badi", "_Z4nonei"};
__attribute__((constructor)) static void start(void) {
    for (int each = 0; each < 5; each++)
        __cudaRegisterFunction(0, names[each], 0, names[each], -1, 0, 0, 0, 0, 0);
}
void run(int device, int kernel, unsigned blocks) {
    int value = 5, count;
    void *arguments[] = {&value};
    Attributes attributes = {0};
    cudaSetDevice(device);
    printf("status %d\n", cudaLaunchKernel(names[kernel], (dim3){blocks, 2, 3}, (dim3){4, 5, 6}, arguments, 7, 0));
    cudaFuncGetAttributes(&attributes, names[kernel]);
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&count, names[kernel], 64, 0, 0);
    printf("shared %zu, threads %d, blocks %d\n", attributes.sizes[0], attributes.numbers[0], count);
    fflush(stdout);
}
