"""Makes a PyTorch that was built without libuv do without it: run once, as the image is built.

Its stores ask for libuv unless they are told not to. Most of PyTorch can be told by USE_LIBUV=0, but torchrun, and with
it `accelerate launch`, cannot: "use_libuv was requested but PyTorch was build without libuv support".
"""

from pathlib import Path

from torch import distributed

_PATCH = """

# Added by the image: this build has no libuv.
_init_store = TCPStore.__init__


def _init_store_without_libuv(self, *args, **options):
    _init_store(self, *args, **{**options, "use_libuv": False})


TCPStore.__init__ = _init_store_without_libuv
"""

try:
    distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
except RuntimeError as error:
    if "libuv" not in str(error):
        raise
    with Path(distributed.__file__).open("a", encoding="utf-8") as source:
        source.write(_PATCH)
