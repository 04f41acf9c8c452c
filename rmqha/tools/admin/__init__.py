"""The admin client: requests to name servers, brokers and controllers, as mqadmin and `rmqha` make them."""
