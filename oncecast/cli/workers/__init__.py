"""Commands for shared subscriptions: `oncecast work` and `oncecast dead`."""
