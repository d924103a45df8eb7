from setuptools import Extension, setup

import fastfetch

setup(ext_modules=[Extension("keysizes", ["keysizes.c"], include_dirs=[fastfetch.get_include()])], py_modules=[])
