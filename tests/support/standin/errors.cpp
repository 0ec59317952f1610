// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

using namespace standin;

namespace {

struct Named {
  int code;
  const char* name;
  const char* text;
};

constexpr Named errors[] = {
    {0, API_NAME(Success), "no error"},
    {1, API_NAME(ErrorInvalidValue), "invalid argument"},
#ifdef STANDIN_CUDA
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {201, "cudaErrorDeviceUninitialized", "invalid device context"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {800, "cudaErrorNotPermitted", "operation not permitted"},
    {802, "cudaErrorSystemNotReady", "system not yet initialized"},
#else
    {2, "hipErrorOutOfMemory", "out of memory"},
    {3, "hipErrorNotInitialized", "initialization error"},
    {201, "hipErrorInvalidContext", "invalid device context"},
    {400, "hipErrorInvalidHandle", "invalid resource handle"},
#endif
    {4, "driver shutting down", "driver shutting down"},
    {35, API_NAME(ErrorInsufficientDriver), "driver version is insufficient for runtime version"},
    {100, API_NAME(ErrorNoDevice), "no device is detected"},
    {101, API_NAME(ErrorInvalidDevice), "invalid device ordinal"},
    {217, API_NAME(ErrorPeerAccessUnsupported),
     "peer access is not supported between these two devices"},
    {600, API_NAME(ErrorNotReady), "device not ready"},
    {700, API_NAME(ErrorIllegalAddress), "an illegal memory access was encountered"},
    {704, API_NAME(ErrorPeerAccessAlreadyEnabled), "peer access is already enabled"},
    {705, API_NAME(ErrorPeerAccessNotEnabled), "peer access has not been enabled"},
    {719, API_NAME(ErrorLaunchFailure), "unspecified launch failure"},
    {801, API_NAME(ErrorNotSupported), "operation not supported"},
    {900, API_NAME(ErrorStreamCaptureUnsupported),
     "operation not permitted when stream is capturing"},
    {901, API_NAME(ErrorStreamCaptureInvalidated),
     "operation failed due to a previous error during capture"},
    {902, API_NAME(ErrorStreamCaptureMerge),
     "operation would result in a merge of separate capture sequences"},
    {903, API_NAME(ErrorStreamCaptureUnmatched),
     "operation failed because the capture was begun on another stream"},
    {904, API_NAME(ErrorStreamCaptureUnjoined), "capturing stream has unjoined work"},
    {905, API_NAME(ErrorStreamCaptureIsolation),
     "dependency created on uncaptured work in another stream"},
    {906, API_NAME(ErrorStreamCaptureImplicit),
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, API_NAME(ErrorCapturedEvent),
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, API_NAME(ErrorStreamCaptureWrongThread), "capture was begun by another thread"},
    {910, API_NAME(ErrorGraphExecUpdateFailure),
     "the graph update was not performed because it included changes which violated constraints"},
    {999, API_NAME(ErrorUnknown), "unknown error"},
};

const Named* find(int code) {
  for (const Named& error : errors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

}  // namespace

extern "C" {

const char* API(GetErrorName)(Error code) {
  const Named* const found = find(code);
  return found != nullptr ? found->name : "unrecognized error code";
}

const char* API(GetErrorString)(Error code) {
  const Named* const found = find(code);
  return found != nullptr ? found->text : "unrecognized error code";
}

Error API(PeekAtLastError)() { return static_cast<Error>(this_thread().last_error); }

Error API(GetLastError)() {
  const int last = this_thread().last_error;
  this_thread().last_error = ok;
  return static_cast<Error>(last);
}

}  // extern "C"
