"""Imports MXNet, and reports what it needs. Only the standard library is imported here (`numpy_names` excepted).

==============  ====================================================================================
module          content
==============  ====================================================================================
`requirements`  the versions and the wheels that mxsame is made for; `setup.py` reads it too
`problems`      what keeps MXNet from being imported, and the command that fixes it
`importing`     what `import mxsame` does so that `import mxnet` works
`numpy_names`   the NumPy that MXNet's modules get
`cuda`          CUDA's libraries and NVIDIA's driver
==============  ====================================================================================
"""
