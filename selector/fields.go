package selector

// Fields returns the fields of a CSV row, unquoted, and whether the row is well
// formed.
func Fields(row []byte, d Dialect) ([]string, bool) { return csvFields(row, d) }
