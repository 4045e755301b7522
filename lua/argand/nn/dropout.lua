--- Dropout: zeroes elements at random while training.

local ag = require "argand"
local core = require "argand.core"
local checks = require "argand.nn.checks"
local options = require "argand.options"
local Module = require "argand.nn.module"

---@class argand.nn.Dropout: argand.nn.Module
local Dropout = Module:extend "Dropout"

--- Elements are dropped with probability p, the others scaled by 1 / (1 - p); identity after eval().
---@param p? number default 0.5, 0 <= p < 1
---@param opts? {generator: argand.Generator}
function Dropout:init(p, opts)
  p = p == nil and 0.5 or p
  if not options.is_between(p, 0, 1) or p == 1 then
    core.raise("value", "Dropout", "p: expected a number in [0, 1), got " .. tostring(p))
  end
  self.p = p
  self.generator = options.read("Dropout", opts, { generator = options.optional.any }).generator
end

--- Maps x to a tensor of the same shape.
---@param x argand.Tensor
---@return argand.Tensor
function Dropout:forward(x)
  checks.require_tensor("Dropout", x)
  if not self.training or self.p == 0 then return x end
  return ag.dropout(x, self.p, { training = true, generator = self.generator })
end

function Dropout:extra()
  return ("p=%g"):format(self.p)
end

return Dropout
