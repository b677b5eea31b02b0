// CUDA's driver: it prints its calls, and refuses damaged files and grids of nine blocks.
#include <stdio.h>
#include <string.h>
int cuModuleLoad(const char **module, const char *path) {
    const char *file = strrchr(path, '/') + 1;
    printf("load %s\n", file);
    if (strstr(file, "damaged")) return 200;
    *module = strdup(file);
    return 0;
}
int cuModuleGetFunction(const char **function, const char *module, const char *name) {
    *function = strdup(name);
    return 0;
}
int cuLaunchKernel(const char *function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f,
                   unsigned shared, void *stream, void **arguments, void **more) {
    printf("driver: %s, grid %u %u %u, block %u %u %u, shared %u, argument %d\n", function, a, b, c, d, e, f, shared,
           *(int *)arguments[0]);
    return a == 9;
}
int cuFuncGetAttribute(int *out, int attribute, const char *function) { *out = 10 + attribute; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const char *function, int block, size_t shared,
                                                         unsigned flags) { *out = block; return 0; }
