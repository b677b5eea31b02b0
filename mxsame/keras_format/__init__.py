"""Keras models as data, and their files.

A `Model` (`description`) has layers, their configurations, calls and weights; `topology` has their order. `files` opens
files, `config` reads a configuration as a `Model`, and `weights` reads and writes weights. `saving` writes a whole
`Model`, and `versions` converts its layers from one version of Keras to another. `dtypes` has Keras's rules of types.
"""
