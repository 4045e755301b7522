--- keys: the key file of a job: made for it, or copied to a host, in a folder of its own and removed at the end.
local core = require "argand.core"
local process = core.process

local M = {}

local function new_path()
  local folder, err = process.temporary_folder()
  if not folder then core.raise("file", "run", err) end
  return folder .. "/key"
end

--- Makes a key; returns the path of its file.
---@return string path
function M.make()
  local path = new_path()
  local ok, result, err = pcall(core.dist.keygen, path)
  if not ok or result == nil and err then
    M.remove(path)
    error(ok and err or result, 0)
  end
  return path
end

--- Puts the text of a key into a private file; returns its path.
---@param text string
---@return string path
function M.store(text)
  local path = new_path()
  local ok, err = process.write_private(path, text)
  if not ok then
    M.remove(path)
    core.raise("file", "run", err)
  end
  return path
end

--- Removes a file of make or store, and its folder; nil is accepted.
---@param path string|nil
function M.remove(path)
  if not path then return end
  os.remove(path)
  os.remove((path:gsub("/key$", "")))
end

return M
