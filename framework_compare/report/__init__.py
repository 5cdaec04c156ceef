"""What readers see: tables and their renderers, exports, pictures. It reads frames and never a store."""
