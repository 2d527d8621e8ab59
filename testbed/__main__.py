"""The program: `testbed`, or `python -m testbed`."""

import signal


def main() -> None:
    """Entry point of the console script. While the command is imported, Ctrl-C ends it without a word of Python's."""
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:  # not under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from testbed import cli

    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    main()
