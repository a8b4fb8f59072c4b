package mcpproxy

// Bounded is bounded, for tests.
var Bounded = bounded
