package heal

// Callers are the functions and packages that call what a list waits for.
var Callers = callers
