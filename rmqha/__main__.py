"""`python -m rmqha`: the command `rmqha`, where the folder of installed programs is not on PATH."""
import sys

from rmqha.launch import rmqha

if __name__ == "__main__":
    sys.exit(rmqha())
