"""Examples of every command, shown below its help. Tests parse all of them, and run those that train nothing."""

# IMAGES stands for a folder with one folder of images per class, STUDY for a study's folder or name, ARCHIVE for a
# folder of submissions.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "quickstart": ("quickstart", "quickstart torch,paddle"),
    "doctor": ("doctor", "doctor torch,jax --strict"),
    "list": ("list", "list --json"),
    "inspect": (
        "inspect my_net.py:build --image-size 64",
        "inspect torchvision:resnet18",
        "inspect my_net.py:build diabetes.csv --target Outcome",
    ),
    "run": (
        "run torch,jax alexnet IMAGES --limit 100",
        "run --frameworks torch --models resnet50 --execution eager,compiled --batch-size 1,16 --out STUDY",
        "run torch,jax resnet50 --budget 30min --dry-run",
        "run torch,jax my_net.py:build diabetes.csv --target Outcome --normalize standard",
        "run study.toml --epochs 5",
        "run torch,jax resnet50 --on slurm --slurm partition=gpu --threads 4 --loader-workers 2",
    ),
    "duel": (
        "duel torch jax alexnet IMAGES",
        "duel torch torch=.venv-new/bin/python resnet50 IMAGES --max-slowdown 5%",
        "duel jax@0.9.2 jax resnet50 IMAGES",
        "duel alexnet mobilenet_v2 torch IMAGES",
    ),
    "bisect": (
        "bisect jax 0.9..0.10 cifar_cnn --threshold 5% --dry-run",
        "bisect torch 2.10..2.14 resnet50 IMAGES --metric memory --out FOLDER",
    ),
    "ladder": (
        'ladder torch lstm_google --rung "batch 100: batch_size=100" --rung "Nadam: optimizer=nadam"',
        "ladder torch abidate2025-google",
    ),
    "largest-batch": ("largest-batch torch,mxnet vgg16 --memory-limit 8GiB --out STUDY",),
    "resume": ("resume latest --dry-run", "resume STUDY --retry failed,timed-out --timeout 3600"),
    "peaks": ("peaks latest",),
    "reproduce": ("reproduce lerat2021 --out FOLDER", "reproduce abidate2025 --part diabetes --frameworks torch"),
    "show": (
        "show",
        "show STUDY --table resources --style markdown",
        "show STUDY_A STUDY_B --changed",
        "show latest --json",
    ),
    "report": (
        "report latest --out report.html",
        "report STUDY --out priced.html --per-hour 3.5 --per-kwh 0.25 --co2-g-per-kwh 300",
    ),
    "figure": ("figure F2 latest --out epoch-time.pdf --width 174mm",),
    "cost": (
        "cost latest --per-hour cpu=0.2,cuda=3.5 --per-kwh 0.25 --co2-g-per-kwh 300",
        "cost STUDY --per-hour 3.5 --epochs 90",
    ),
    "check": ("check latest --baseline STUDY --max-slowdown 20% --allow-inconclusive",),
    "export": ("export latest --format csv --out FOLDER",),
    "publish": ("publish latest --dry-run", "publish STUDY --out ARCHIVE --allow few-blocks --yes"),
    "validate": ("validate ARCHIVE", "validate ARCHIVE --json"),
    "site": ("site ARCHIVE --out SITE",),
    "cite": ("cite latest",),
    "part": ("part STUDY 1",),
    "absorb": ("absorb STUDY",),
    "verify": ("verify torch,jax alexnet", "verify STUDY"),
    "fairness": ("fairness torch,jax alexnet --steps 10 --out FOLDER",),
    "env create": (
        "env create torch,jax@0.9.2",
        "env create torch --device cuda",
        "env create torch --index torch=none",
    ),
    "env list": ("env list",),
    "env prune": ("env prune --older-than 30d --dry-run", "env prune --max-size 10GB --yes"),
    "env remove": ("env remove paddle", "env remove jax@0.9.2"),
}


def below(command: str) -> str:
    """Return what stands below the help of a command; a paragraph per line, as typer joins lines."""
    lines = (f"framework-compare {example}" for example in EXAMPLES.get(command, ()))
    return "\n\n".join(["Examples:", *lines])
