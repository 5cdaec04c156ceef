"""Output for readers: tables and their renderers, exports, plots. It reads frames and never a store."""
