package svcclient

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// Transaction is a transaction of the caller. *sql.Tx is one, and so are *sql.Conn and *sql.DB, with each statement as
// a transaction of its own if none is under way. For pgx see [FromPgx], for SQL Server see [SQLServer].
type Transaction interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
}

// SQLServer returns a transaction whose statements are those of SQL Server. All others are of PostgreSQL.
func SQLServer(tx Transaction) Transaction { return sqlServer{tx} }

type sqlServer struct{ Transaction }

// either returns the text for the transaction's dialect.
func either(tx Transaction, onPostgres, onSQLServer string) string {
	if _, is := tx.(sqlServer); is {
		return onSQLServer
	}
	return onPostgres
}

// FromPgx returns a pgx.Tx, *pgx.Conn, *pgxpool.Conn or *pgxpool.Pool as a [Transaction].
func FromPgx[R interface{ RowsAffected() int64 }](tx interface {
	Exec(ctx context.Context, statement string, args ...any) (R, error)
}) Transaction {
	return execute(func(ctx context.Context, statement string, args ...any) (sql.Result, error) {
		result, err := tx.Exec(ctx, statement, args...)
		if err != nil {
			return nil, err
		}
		return driver.RowsAffected(result.RowsAffected()), nil
	})
}

type execute func(ctx context.Context, statement string, args ...any) (sql.Result, error)

func (e execute) ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	return e(ctx, statement, args...)
}
