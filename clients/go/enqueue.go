package svcclient

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
)

// Options name what is not called as in the service's own tables.
type Options struct {
	// Table is outbox by default.
	Table string
	// Schema is by default the one that the connection finds.
	Schema string
	// Columns renames columns.
	Columns Columns
	// Cells are the schemas of the cells, in their order. Each message goes to the cell of its key, see [CellOf].
	Cells []string
}

// Columns are the names of columns. An empty name is the service's own.
type Columns struct {
	ID, Topic, Payload, Key, Headers, Destination, DeliverAt, ExpiresAt string
}

// Outbox is an outbox with names of the application's own.
type Outbox struct {
	options Options
	names   [len(columns)]string
}

// NewOutbox returns an [EnqueueError] with the code options for a bad name.
func NewOutbox(options Options) (*Outbox, error) {
	options.Table = cmp.Or(options.Table, "outbox")
	own := options.Columns
	names := [...]string{own.ID, own.Topic, own.Payload, own.Key, own.Headers, own.Destination, own.DeliverAt, own.ExpiresAt}
	for n, column := range columns {
		names[n] = cmp.Or(names[n], column.name)
	}
	var c checks
	for _, name := range slices.Concat(options.Cells, []string{options.Table, options.Schema}, names[:]) {
		c.refuseIf(strings.ContainsRune(name, 0), "options", "the name %q holds a NUL, expected none", name)
	}
	c.refuseIf(slices.Contains(options.Cells, ""), "options", "the name of a cell is empty, expected the name of a schema")
	return &Outbox{options, names}, c.refused
}

var usual, _ = NewOutbox(Options{})

// Enqueue writes a message in the caller's transaction, and returns its id. It returns an [EnqueueError], before any
// statement, for a message that the database would refuse.
func Enqueue(ctx context.Context, tx Transaction, message Message) (string, error) {
	return usual.Enqueue(ctx, tx, message)
}

// EnqueueMany writes several messages in one statement, in this order, and returns their ids.
func EnqueueMany(ctx context.Context, tx Transaction, messages []Message) ([]string, error) {
	return usual.EnqueueMany(ctx, tx, messages)
}

// Enqueue is [Enqueue] for this outbox.
func (o *Outbox) Enqueue(ctx context.Context, tx Transaction, message Message) (string, error) {
	ids, err := o.EnqueueMany(ctx, tx, []Message{message})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// EnqueueMany is [EnqueueMany] for this outbox. With cells there is a statement for each cell.
func (o *Outbox) EnqueueMany(ctx context.Context, tx Transaction, messages []Message) ([]string, error) {
	ids := make([]string, len(messages))
	bySchema := make([][]row, max(len(o.options.Cells), 1))
	for n, message := range messages {
		r, err := rowOf(ctx, message)
		if err != nil {
			return nil, err
		}
		cell := CellOf(message.Key, len(o.options.Cells))
		bySchema[cell], ids[n] = append(bySchema[cell], r), *r[0]
	}
	for cell, rows := range bySchema {
		schema := o.options.Schema
		if len(o.options.Cells) > 0 {
			schema = o.options.Cells[cell]
		}
		for ; len(rows) > 0; rows = rows[min(mostRows, len(rows)):] {
			statement, values := o.insert(isSQLServer(tx), schema, rows[:min(mostRows, len(rows))])
			if _, err := tx.ExecContext(ctx, statement, values...); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// mostRows keeps a statement below the 2100 parameters that SQL Server takes.
const mostRows = 250

// insert names only the columns that a row needs: an application may have no right to the others.
func (o *Outbox) insert(isSQLServer bool, schema string, rows []row) (string, []any) {
	quote, prefix := quoted, "$"
	if isSQLServer {
		quote, prefix = bracketed, "@p"
	}
	table := quote(o.options.Table)
	if schema != "" {
		table = quote(schema) + "." + table
	}
	var used []int
	var names []string
	for n := range columns {
		if slices.ContainsFunc(rows, func(r row) bool { return r[n] != nil }) {
			used, names = append(used, n), append(names, quote(o.names[n]))
		}
	}
	var values []any
	lists := make([]string, len(rows))
	for m, r := range rows {
		list := make([]string, len(used))
		for k, n := range used {
			switch {
			case r[n] == nil && columns[n].hasDefault:
				list[k] = "DEFAULT"
				continue
			case r[n] == nil:
				values = append(values, nil)
			default:
				values = append(values, *r[n])
			}
			list[k] = prefix + strconv.Itoa(len(values))
			if !isSQLServer {
				list[k] += columns[n].cast
			}
		}
		lists[m] = "(" + strings.Join(list, ", ") + ")"
	}
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES " + strings.Join(lists, ", "), values
}

func quoted(name string) string    { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func bracketed(name string) string { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" }
