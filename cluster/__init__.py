"""Running it big: the autoscaling policy, cluster files, alerts and dashboards."""
