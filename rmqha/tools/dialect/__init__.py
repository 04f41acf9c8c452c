"""What all commands of `rmqha` have in common: options, exit codes, output, errors. See docs/commands.md."""
