/* Runs the files of mxsame.export, or of Gluon's export, by MXNet's C predict API:
   predict PREFIX N,H,W,C < numbers > numbers  (float32, of the input "data" and of the first output). */
#include <stdbool.h> /* the header of MXNet is C++, and needs these two */
#include <stdint.h>
#include <mxnet/c_predict_api.h>
#include <stdio.h>
#include <stdlib.h>

/* _Exit: the destructors of MXNet must not run while its threads do, which may still free a predictor. */
#define CHECK(call) do { if (call) { fprintf(stderr, "%s\n", MXGetLastError()); _Exit(1); } } while (0)
#define FAIL(text) do { fprintf(stderr, "%s\n", text); _Exit(1); } while (0)

static char *content(const char *prefix, const char *end, long *size) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", prefix, end);
    FILE *file = fopen(path, "rb");
    if (file == NULL) { perror(path); _Exit(1); }
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    char *bytes = calloc(*size + 1, 1); /* a zero at the end: the symbol is a string */
    if (fread(bytes, 1, *size, file) != (size_t)*size) FAIL(path);
    fclose(file);
    return bytes;
}

int main(int count, char **arguments) {
    if (count != 3) FAIL("usage: predict PREFIX N,H,W,C < numbers > numbers");
    mx_uint shape[8], ends[2] = {0, 0}, inputs = 1;
    for (char *at = arguments[2]; *at && ends[1] < 8; at += *at == ',') {
        inputs *= shape[ends[1]++] = strtoul(at, &at, 10);
        if (*at && *at != ',') FAIL("a shape is integers with commas between");
    }
    long symbol_size, params_size;
    char *symbol = content(arguments[1], "-symbol.json", &symbol_size);
    char *params = content(arguments[1], "-0000.params", &params_size);
    const char *names[] = {"data"};
    PredictorHandle net;
    CHECK(MXPredCreate(symbol, params, params_size, 1, 0, 1, names, ends, shape, &net)); /* 1, 0: the CPU */
    float *data = malloc(inputs * sizeof *data);
    if (fread(data, sizeof *data, inputs, stdin) != inputs) FAIL("the input must have as many numbers as the shape");
    CHECK(MXPredSetInput(net, "data", data, inputs));
    CHECK(MXPredForward(net));
    mx_uint *lengths, axes, outputs = 1;
    CHECK(MXPredGetOutputShape(net, 0, &lengths, &axes));
    for (mx_uint axis = 0; axis < axes; axis++) outputs *= lengths[axis];
    float *out = malloc(outputs * sizeof *out);
    CHECK(MXPredGetOutput(net, 0, out, outputs));
    if (fwrite(out, sizeof *out, outputs, stdout) != outputs || fflush(stdout)) FAIL("the output cannot be written");
    CHECK(MXPredFree(net));
    _Exit(0);
}
