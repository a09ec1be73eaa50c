"""The job and what it runs on: broker behind a proxy, driver, executors, and their processes."""
