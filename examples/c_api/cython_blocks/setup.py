from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import fastfetch

packages = Path(fastfetch.__file__).parents[1]  # where the .pxd files are; an editable install is not on Cython's path
extension = Extension("longs", ["longs.pyx"], include_dirs=[fastfetch.get_include()])
setup(ext_modules=cythonize([extension], include_path=[str(packages)], language_level=3), py_modules=[])
