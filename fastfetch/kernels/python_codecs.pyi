from typing import final

@final
class PythonStates: ...
