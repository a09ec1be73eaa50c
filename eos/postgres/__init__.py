"""PostgreSQL as an output: staged rows, and one transaction that commits them. Spark-free."""
