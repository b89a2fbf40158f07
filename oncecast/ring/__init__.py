"""The ring of replica groups: ownership of topics, backups and moves."""
