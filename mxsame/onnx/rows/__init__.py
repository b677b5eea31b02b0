"""How operators are written, in one file for each family; the table is `mxsame.onnx.operators`."""
