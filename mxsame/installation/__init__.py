"""Imports MXNet, and reports what is missing. All modules but `numpy_names` import only the standard library.

==============  ====================================================================================
module          content
==============  ====================================================================================
`requirements`  the versions and the wheels that mxsame supports; `setup.py` runs it, too
`problems`      errors that report why MXNet cannot be imported, with the command that fixes it
`importing`     makes `import mxnet` work
`numpy_names`   the NumPy that MXNet's modules import
`cuda`          loads CUDA's libraries and NVIDIA's driver
==============  ====================================================================================
"""
