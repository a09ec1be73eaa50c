"""The job and its environment: brokers, proxy, driver, executors, and their processes."""
