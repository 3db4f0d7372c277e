// SPDX-License-Identifier: MIT
#include "model/model.h"

#include "model/arch/arch.h"
#include "model/builder.h"
#include "model/tensor_names.h"

namespace mainarch::model {

StatusOr<std::vector<std::shared_ptr<const backend::Program>>> BuildPrograms(
    const Arch& arch, const ModelConfig& config, std::shared_ptr<const file::Checkpoint> checkpoint,
    int32_t ranks, Part part) {
  const bool drafted = part == Part::kModelAndDrafts && arch.draft != nullptr;
  std::vector<std::shared_ptr<const backend::Program>> programs;
  for (const auto build : {arch.build, arch.draft}) {
    if (build == arch.draft && !drafted) continue;
    Builder builder(config, checkpoint, ranks);
    if (drafted) builder.set_drafted();
    if (part == Part::kVectors) builder.set_vectors();
    build(builder);
    ASSIGN_OR_RETURN(auto program, builder.Finish());
    programs.push_back(std::move(program));
  }
  return programs;
}

StatusOr<std::shared_ptr<const Model>> Model::Load(std::shared_ptr<backend::Backend> backend,
                                                   const std::string& directory,
                                                   const backend::LoadOptions& options,
                                                   Part part) {
  std::shared_ptr<Model> model(new Model());
  model->backend_ = std::move(backend);
  ASSIGN_OR_RETURN(model->checkpoint_, file::Checkpoint::Open(directory));
  ASSIGN_OR_RETURN(model->config_, ParseConfig(model->checkpoint_->config_json(),
                                               model->checkpoint_->generation_config_json(),
                                               directory));
  model->config_.stored = model->backend_->StoredHeads(model->config_.Heads());
  model->part_ = part == Part::kModelAndDrafts && !HasDraftHead(*model->checkpoint_) ? Part::kModel : part;
  ASSIGN_OR_RETURN(auto programs,
                   BuildPrograms(*FindArch(model->config_.model_type), model->config_,
                                 model->checkpoint_, model->backend_->ranks(), model->part_));
  ASSIGN_OR_RETURN(model->weights_, model->backend_->Load(std::move(programs), options));
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace mainarch::model
