"""
What a stopped task asks of the kernel, and what it is told: changed from outside.

Works at the stops of `Tracer.stops` only: what is asked when a call is entered, what is told when it is left.
"""

import ctypes
import platform
from typing import Final

from tests.tracing.ptrace import Tracer, TracingFailed

_GET_REGISTERS, _SET_REGISTERS = 0x4204, 0x4205
_GENERAL: Final = 1
#: NT_ARM_SYSTEM_CALL of linux/elf.h: on aarch64 the number of a call is no register.
_NUMBER_ON_ARM: Final = 0x404
#: More than the general registers of either processor take.
_MOST_REGISTERS: Final = 64
_NO_CALL: Final = 2**64 - 1

#: `struct user_regs_struct` of arch/x86/include/asm/user_64.h: where the six arguments, the answer and the number are.
_X86_ARGUMENTS: Final = (14, 13, 12, 7, 9, 8)
_X86_ANSWER: Final = 10
_X86_NUMBER: Final = 15


class _Vector(ctypes.Structure):
    # struct iovec
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Registers:
    """
    Changes the registers of a tracer's tasks.

    :raises TracingFailed: On a processor whose registers nobody looked up.
    """

    def __init__(self, tracer: Tracer) -> None:
        machine = platform.machine()
        if machine not in ("x86_64", "aarch64", "arm64"):
            raise TracingFailed("Registers are known on x86_64 and aarch64 only.")
        self._tracer = tracer
        self._is_x86 = machine == "x86_64"

    def skip_call(self, task: int) -> None:
        """Let the kernel carry out nothing. Whatever the answer is then is for `answer` to say."""
        if self._is_x86:
            self._change(task, _X86_NUMBER, _NO_CALL)
            return
        number = ctypes.c_int(-1)
        self._transfer(_SET_REGISTERS, task, _NUMBER_ON_ARM, number, ctypes.sizeof(number))

    def set_argument(self, task: int, position: int, value: int) -> None:
        """Change an argument. The task gets to see that too, so it has to be changed back when the call is left."""
        self._change(task, _X86_ARGUMENTS[position] if self._is_x86 else position, value)

    def answer(self, task: int, value: int) -> None:
        """Change what a call answers; a negative number is an error's."""
        self._change(task, _X86_ANSWER if self._is_x86 else 0, value % 2**64)

    def _change(self, task: int, register: int, value: int) -> None:
        registers = (ctypes.c_uint64 * _MOST_REGISTERS)()
        length = self._transfer(_GET_REGISTERS, task, _GENERAL, registers, ctypes.sizeof(registers))
        registers[register] = value
        self._transfer(_SET_REGISTERS, task, _GENERAL, registers, length)

    def _transfer(self, request: int, task: int, kind: int, data: "ctypes._CData", length: int) -> int:
        vector = _Vector(ctypes.addressof(data), length)
        self._tracer.request(request, task, kind, ctypes.addressof(vector))
        return int(vector.length)
