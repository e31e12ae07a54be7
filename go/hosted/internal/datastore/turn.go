package datastore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"tenantry.dev/hosted/internal/settings"
)

// takeTurn waits until no other process opens the database, and returns what ends the turn.
//
// Two processes that create one table at the same time fail, and so do two that write kine's first row. The lock is that
// of a connection: it ends with this process, too.
func takeTurn(ctx context.Context, connector driver.Connector, given settings.SQL) (func(), error) {
	asking, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	database := sql.OpenDB(connector)
	held, err := database.Conn(asking)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the server does not answer: %w", err), database.Close())
	}
	end := func() {
		held.Close()
		database.Close()
	}
	if given.Driver == settings.Postgres {
		_, err = held.ExecContext(asking, `SELECT pg_advisory_lock(hashtext('kine'), 2)`)
	} else {
		// Names of locks are those of the whole server: only this control plane knows its own.
		var taken sql.NullBool
		err = held.QueryRowContext(asking, `SELECT GET_LOCK(?, ?)`, "kine-"+given.Owner, turnPatience.Seconds()).Scan(&taken)
		if err == nil && !taken.Bool {
			err = context.DeadlineExceeded
		}
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("another process has been opening the database for too long: %w", err)
	}
	return end, nil
}
