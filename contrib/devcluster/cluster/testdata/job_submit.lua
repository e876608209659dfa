-- The comment of each job shows that slurmctld runs this file of --job-submit and that the decision table is readable.
function slurm_job_submit(job_desc, part_list, submit_uid)
    local line = io.open("/etc/caelum/decisions"):read("*l")
    job_desc.comment = "submitted under " .. line
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
