"""Two frameworks and one model on rendered images: the verdicts, a table for a paper, the report.

python examples/compare.py
"""

from framework_compare import compare


def main() -> None:
    study = compare(["torch", "jax"], "alexnet", dataset="fire-smoke-tiny", limit=24, image_size=64, batch_size=8)
    print(study.table("time"))
    for verdict in study.verdicts():
        print(verdict.sentence)
    print(study.table("time").to_latex(label="tab:alexnet", caption="AlexNet, seconds per epoch."))
    print(study.report("report.html"))


if __name__ == "__main__":
    main()
