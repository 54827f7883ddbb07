package main

import (
	"fmt"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

func missing(field string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_REQUIRED_FIELD_MISSING,
		field+" is required", "field", field)
}

func invalid(field, sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_FIELD_INVALID, field+" "+sentence, "field", field)
}

func unsupported(option string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED,
		fmt.Sprintf("the service does not offer %s", option), "option", option, "backend", backend)
}

func notFound(id, instance string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_NOT_FOUND,
		"the sandbox is not here, or not any more", "sandbox_id", id, "instance_id", instance)
}

func lost(id string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST,
		"the sandbox ended under the call", "sandbox_id", id, "cause", "ended")
}

func draining() *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_DRAINING, "the server is shutting down")
}
