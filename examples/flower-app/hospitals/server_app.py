"""What runs at the coordinator: training, then one evaluation of the trained model."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedgauge as fg
import fedgauge.flower
from fedgauge.plots import save_plots
from hospitals.task import model_to_arrays, new_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, evaluate, save."""
    config = context.run_config
    nodes = int(config["nodes"])
    strategy = FedAvg(fraction_evaluate=0, min_available_nodes=nodes, weighted_by_key="weight")
    trained = strategy.start(
        grid, initial_arrays=model_to_arrays(new_model()), num_rounds=int(config["rounds"])
    )

    plan = fg.planner.propose(
        privacy=fg.DistributedDP(epsilon=float(config["epsilon"])),
        clients=nodes,
        examples=int(config["examples"]),
        positive_rate=float(config["positive-rate"]),
        cohort=fg.Cohort(min_survivors=max(3, nodes * 3 // 4), max_colluding=1),
    )
    result = fedgauge.flower.evaluate(
        grid, plan, arrays=trained.arrays, timeout=float(config["timeout"])
    )

    out = Path(str(config["out"])).absolute()
    out.mkdir(parents=True, exist_ok=True)
    result.to_json(out / "result.json")
    result.to_html(out / "report.html", name=f"{nodes} hospitals")
    save_plots(result, out)
    print(result)  # noqa: T201
    print(f"Saved result.json, report.html and plots in {out}")  # noqa: T201
