"""The ring of replica groups: topic ownership, backups, moves and push delivery."""
