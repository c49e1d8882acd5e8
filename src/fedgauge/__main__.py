"""The command line as `python -m fedgauge`, where the command is not on the path."""

from fedgauge.cli import main

if __name__ == "__main__":
    main()
