"""HTTP: one file per group of routes, the service behind them."""
