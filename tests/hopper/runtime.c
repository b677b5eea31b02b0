// CUDA's runtime: it prints its calls, and has machine code for no kernel, as on a Hopper GPU.
#include <stdio.h>
typedef struct { unsigned x, y, z; } dim3;
static int device = 0;
void __cudaRegisterFunction(void **b, const char *address, char *d, const char *name, int l, void *t, void *i, void *j,
                            void *k, int *w) { printf("register %s\n", name); }
int cudaGetDevice(int *out) { *out = device; return 0; }
int cudaSetDevice(int number) { device = number; return 0; }
int cudaFree(void *pointer) { return 0; }
int cudaLaunchKernel(const void *address, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    printf("runtime: %s\n", (const char *)address);
    return 209;
}
int cudaFuncGetAttributes(size_t *out, const void *address) { out[0] = 1; return 0; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *address, int block, size_t shared,
                                                           unsigned flags) { *out = 1; return 0; }
