"""Options that mean the same for each command that has them."""
import click

from rmqha.common.mix_all import NAMESRV_ADDR_ENV

namesrv_option = click.option(
    "-n", "--namesrv", envvar=NAMESRV_ADDR_ENV, metavar="HOST:PORT",
    help="Name servers, separated by semicolons; by default $NAMESRV_ADDR.")
topic_option = click.option("-t", "--topic", required=True, help="The topic.")
output_option = click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
                             show_default=True, help="How to print.")
