--- Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019). The formulas are PyTorch's.

local ag = require "argand"
local core = require "argand.core"
local class = require "argand.class"
local options = require "argand.options"
local Optimizer = require "argand.optim.optimizer"

local M = {}

-- The two differ in where weight decay acts (on the gradient, or on the parameter itself) and in its default.
local function define(name, is_decoupled, weight_decay)
  local Adam = class(name, Optimizer)

  --- beta1 and beta2 are the decay rates of the running means of the gradient and of its square.
  ---@param params argand.Tensor[]|table[] parameters, or groups {params = ..., lr = ...}
  ---@param opts? {lr: number, beta1: number, beta2: number, eps: number, weight_decay: number}
  function Adam:init(params, opts)
    Optimizer.init(self, params, opts,
      { lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = weight_decay })
  end

  function Adam:check_group(group)
    for _, beta in ipairs { "beta1", "beta2" } do
      if not options.is_between(group[beta], 0, 1) or group[beta] == 1 then
        return ("%s: expected a number in [0, 1), got %g"):format(beta, group[beta])
      end
    end
    if not options.is_between(group.eps, 0) then
      return ("eps: expected a number >= 0, got %g"):format(group.eps)
    end
    return Optimizer.check_group(self, group)
  end

  function Adam.start_state(_, _, parameter)
    return { step = 0, exp_avg = ag.zeros_like(parameter), exp_avg_sq = ag.zeros_like(parameter) }
  end

  function Adam:update(group, batch)
    local list = self:tensors_of(batch, "exp_avg", "exp_avg_sq")
    core.call("adam_step", list, group.lr, group.beta1, group.beta2, group.eps, group.weight_decay,
      is_decoupled, batch.step + 1)
  end

  return Adam
end

---@class argand.optim.Adam: argand.optim.Optimizer
M.Adam = define("Adam", false, 0)

---@class argand.optim.AdamW: argand.optim.Optimizer
M.AdamW = define("AdamW", true, 1e-2)

return M
