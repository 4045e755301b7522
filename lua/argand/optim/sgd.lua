--- SGD: gradient descent with momentum. The formulas are PyTorch's.

local ag = require "argand"
local core = require "argand.core"
local class = require "argand.class"
local options = require "argand.options"
local Optimizer = require "argand.optim.optimizer"

---@class argand.optim.SGD: argand.optim.Optimizer
local SGD = class("SGD", Optimizer)

--- Without momentum no state is kept.
---@param params argand.Tensor[]|table[] parameters, or groups {params = ..., lr = ...}
---@param opts? {lr: number, momentum: number, dampening: number, weight_decay: number, nesterov: boolean}
function SGD:init(params, opts)
  Optimizer.init(self, params, opts,
    { lr = 1e-2, momentum = 0, dampening = 0, weight_decay = 0, nesterov = false })
end

function SGD:check_group(group)
  if not options.is_between(group.momentum, 0) then
    return ("momentum: expected a number >= 0, got %g"):format(group.momentum)
  end
  if group.nesterov and (group.momentum == 0 or group.dampening ~= 0) then
    return "nesterov: needs a momentum and no dampening"
  end
  return Optimizer.check_group(self, group)
end

function SGD.start_state(_, group, parameter)
  return { step = 0, momentum_buffer = group.momentum ~= 0 and ag.zeros_like(parameter) or nil }
end

function SGD:update(group, batch)
  local list
  if group.momentum ~= 0 then
    for position, state in ipairs(batch.states) do
      state.momentum_buffer = state.momentum_buffer or core.keep(ag.zeros_like(batch.params[position]))
    end
    list = self:tensors_of(batch, "momentum_buffer")
  else
    list = self:tensors_of(batch)
  end
  core.call("sgd_step", list, group.lr, group.momentum, group.dampening, group.weight_decay, group.nesterov,
    batch.step == 0)
end

return SGD
