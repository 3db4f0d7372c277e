// SPDX-License-Identifier: MIT
#include "cli/opened_model.h"

#include "cli/model_path.h"

namespace mainarch::cli {

StatusOr<OpenedModel> OpenModel(const ModelOptions& options, bool device_given, uint64_t flags) {
  ASSIGN_OR_RETURN(const std::string path, ModelPath(options.model));
  OpenedModel opened;
  mainarch_error error;
  auto group_options = Sized<mainarch_group_options>();
  group_options.threads = static_cast<uint32_t>(options.threads);
  mainarch_group* group;
  RETURN_IF_ERROR(FromAbi(mainarch_group_open(device_given ? options.device.c_str() : nullptr,
                                              &group_options, &group, &error),
                          error));
  opened.group.reset(group);

  auto model_options = Sized<mainarch_model_options>();
  model_options.flags = flags;
  if (options.in_place) model_options.flags |= MAINARCH_MODEL_IN_PLACE;
  mainarch_model* model;
  RETURN_IF_ERROR(FromAbi(
      mainarch_model_open(group, path.c_str(), &model_options, &model, &error), error));
  opened.model.reset(model);

  mainarch_tokenizer* tokenizer;
  RETURN_IF_ERROR(FromAbi(mainarch_tokenizer_from_model(model, &tokenizer, &error), error));
  opened.tokenizer.reset(tokenizer);
  opened.info = Sized<mainarch_model_info>();
  RETURN_IF_ERROR(FromAbi(mainarch_model_info_get(model, &opened.info, &error), error));
  return opened;
}

}  // namespace mainarch::cli
