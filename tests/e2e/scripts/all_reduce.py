"""Plain torch.distributed over the rendezvous that the agent prepared: the sum of all ranks."""

import torch
from torch import distributed


def main() -> None:
    distributed.init_process_group("gloo")
    total = torch.tensor([distributed.get_rank()])
    distributed.all_reduce(total)
    print(f"sum of {distributed.get_world_size()} ranks: {int(total)}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
