--- Embedding: a trained row for every id 1..count.

local ag = require "argand"
local core = require "argand.core"
local checks = require "argand.nn.checks"
local initializer = require "argand.nn.initializer"
local options = require "argand.options"
local Module = require "argand.nn.module"

---@class argand.nn.Embedding: argand.nn.Module
---@field weight argand.Tensor [count, width]
local Embedding = Module:extend "Embedding"

--- Rows start normal(0, 1). The row padding_idx starts at zero and gets no gradient.
---@param count integer
---@param width integer
---@param opts? {padding_idx: integer, dtype: string, device: string, generator: argand.Generator}
function Embedding:init(count, width, opts)
  checks.require_count("Embedding", "count", count, 1)
  checks.require_count("Embedding", "width", width, 1)
  local read, creation = checks.read_options("Embedding", opts, { padding_idx = options.optional.number })
  self.count, self.width, self.padding_idx = count, width, read.padding_idx
  if read.padding_idx then
    checks.require_count("Embedding", "padding_idx", read.padding_idx, 1)
    if read.padding_idx > count then
      local message = ("padding_idx: expected 1 to %d, got %d"):format(count, read.padding_idx)
      core.raise("index", "Embedding", message)
    end
  end
  self.weight = ag.empty({ count, width }, creation)
  initializer.normal_(self.weight, 0, 1, { generator = read.generator })
  if read.padding_idx then
    ag.no_grad(function() self.weight:select(1, read.padding_idx):fill_(0) end)
  end
end

--- Looks up ids: [...] of whole numbers 1..count, giving [..., width].
---@param ids argand.Tensor
---@return argand.Tensor
function Embedding:forward(ids)
  checks.require_tensor("Embedding", ids)
  return ag.embedding(self.weight, ids, self.padding_idx)
end

function Embedding:extra()
  local padding = self.padding_idx and (", padding_idx=%d"):format(self.padding_idx) or ""
  return ("%d, %d%s"):format(self.count, self.width, padding)
end

return Embedding
