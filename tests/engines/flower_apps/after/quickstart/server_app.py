"""What runs at the server."""

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import fedgauge.flower

app = ServerApp()


class SlowingFedAvg(FedAvg):
    """FedAvg whose nodes are told a learning rate that shrinks."""

    def configure_train(self, server_round, arrays, config, grid):
        """Tell this round's rate."""
        config["rate"] = 0.5 / server_round
        return super().configure_train(server_round, arrays, config, grid)


@app.main()
def main(grid, context):
    """Train."""
    strategy = SlowingFedAvg(fraction_train=1.0)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(3)]), num_rounds=2)
    context.state["final"] = result.arrays
    plan = fedgauge.planner.propose(privacy=fedgauge.SecureAggregation(), clients=4)
    fedgauge.flower.evaluate(grid, plan, arrays=result.arrays).to_json("pooled.json")
