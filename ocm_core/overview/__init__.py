"""All experiments at a glance: `best` (which method where), `page` (`reports/index.html`)."""
