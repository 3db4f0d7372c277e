// SPDX-License-Identifier: MIT
//
// What calls on an engine and its sequences have in common: the fence, the checks of the handle,
// and one thread at a time until results are copied out.
#ifndef MAINARCH_API_ENGINE_CALL_H_
#define MAINARCH_API_ENGINE_CALL_H_

#include "api/call.h"
#include "api/handles.h"

namespace mainarch::api {

// A result that stays so unless the call succeeds, even if no check is reached.
template <class T>
void Clear(T* result) {
  if (result != nullptr) *result = 0;
}

// `body` takes decode::Engine& and gives a Result.
template <class Body>
mainarch_status EngineCall(mainarch_engine* engine, mainarch_error* error, Body&& body) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckHandle(engine, "engine"));
    const OneThread one(&engine->busy, "engine");
    RETURN_IF_ERROR(one.status());
    return body(*engine->engine);
  });
}

}  // namespace mainarch::api

#endif  // MAINARCH_API_ENGINE_CALL_H_
