"""The ring of groups: who owns which topics, who backs up whom, and how topics move."""
